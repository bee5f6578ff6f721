"""What `gearcache report` and `gearcache diff` show: plain data of a cache, of starts and of two deploys; the page."""
