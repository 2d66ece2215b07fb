"""``python -m rackready``: run the command when its script is not on the path."""

from rackready.cli.main import main

if __name__ == "__main__":
    main()
