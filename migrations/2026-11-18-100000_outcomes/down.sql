DROP TABLE outcomes;
COMMENT ON COLUMN orders.id IS 'UUID version 7';
