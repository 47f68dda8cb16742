-- Operators look for the tickets of a person by name. Without a lock: people pay while it is made.
CREATE INDEX CONCURRENTLY users_by_name ON users (name, id);
