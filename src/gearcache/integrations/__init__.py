"""One line for models of other libraries; each library is imported in its own folder or file only."""
