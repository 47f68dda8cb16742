-- What Redis has to know about every seat stands in its row, so that comparing the two costs the seats of an event, however
-- many tickets were ever sold.
ALTER TABLE seats ADD COLUMN place bigint;
COMMENT ON COLUMN seats.place IS 'Place in line of its last buyer; null: never sold';
