ALTER TABLE controls DROP COLUMN was_paused;
