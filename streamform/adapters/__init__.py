"""All effects: files, HTTP, Kafka, SQLite, the wall clock."""
