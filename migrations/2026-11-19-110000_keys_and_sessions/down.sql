DROP TABLE person_sessions;
-- Whoever has no key from before can no longer sign in.
UPDATE users SET key_hash = decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex') WHERE key_hash IS NULL;
ALTER TABLE users ALTER COLUMN key_hash SET NOT NULL;
DROP TABLE api_keys;
