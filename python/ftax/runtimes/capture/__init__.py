"""The refund: a callable that replays what it recorded, and notices where that would be wrong."""
