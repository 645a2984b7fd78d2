"""What the paper shows, item by item: the cells that each needs, and the page that shows it."""
