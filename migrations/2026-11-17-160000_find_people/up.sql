-- Operators look for the tickets of a person by name.
CREATE INDEX users_by_name ON users (name);
