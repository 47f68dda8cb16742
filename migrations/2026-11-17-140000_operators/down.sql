DROP TABLE figures;
DROP TABLE audit_log;
DROP TABLE controls;
DROP TABLE operators;
COMMENT ON COLUMN events.state IS 'Whether people were let in when a server last looked: open, paused or closed';
COMMENT ON COLUMN events.reason IS 'What visitors were told about a pause at that time';
