ALTER TABLE events
    DROP COLUMN block_start,
    DROP COLUMN block_end,
    DROP COLUMN block_fetch,
    DROP COLUMN block_used;
