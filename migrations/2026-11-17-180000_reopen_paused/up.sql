ALTER TABLE controls ADD COLUMN was_paused boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN controls.was_paused IS 'Of a closed event: whether it was paused before, and is so again when reopened';
