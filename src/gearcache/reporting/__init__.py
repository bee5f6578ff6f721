"""The data behind `report` and `explain A B` (a cache, starts, two deploys), and the HTML page of a report."""
