"""The configuration schema and one short file per experiment."""
