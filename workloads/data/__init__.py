"""Data shipped with the package; see NOTICE.md beside it for sources and licences."""
