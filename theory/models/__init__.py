"""Which models and systems there are: of this toolkit, of other packages, of files."""
