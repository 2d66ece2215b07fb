"""An InfiniBand fabric as its nodes see it: ports, cables, subnet managers and ways, compared with the site."""
