"""Gates: declared commands, pure judgement. One file per topic; the registry finds them."""
