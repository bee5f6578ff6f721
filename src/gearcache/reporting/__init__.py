"""What `report` and `explain A B` show: plain data of a cache, of starts and of two deploys; and the page of it."""
