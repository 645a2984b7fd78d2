"""The refund: a callable that replays what it recorded, and notices when that is wrong by now."""
