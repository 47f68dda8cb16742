CREATE TABLE api_keys (
    id uuid PRIMARY KEY,
    user_id uuid NOT NULL REFERENCES users,
    name text NOT NULL,
    hash bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE api_keys IS 'Keys with which programs act for a person; deleted when they are revoked';
COMMENT ON COLUMN api_keys.id IS 'Number of the key, for its person';
COMMENT ON COLUMN api_keys.user_id IS 'For whom it acts';
COMMENT ON COLUMN api_keys.name IS 'What it is for, in the words of its person';
COMMENT ON COLUMN api_keys.hash IS 'BLAKE3 of the key; the key itself is not kept';
COMMENT ON COLUMN api_keys.created_at IS 'When it was made';
CREATE INDEX api_keys_by_person ON api_keys (user_id, created_at);
INSERT INTO api_keys (id, user_id, name, hash, created_at)
SELECT gen_random_uuid(), id, 'sign-up', key_hash, created_at FROM users;
ALTER TABLE users ALTER COLUMN key_hash DROP NOT NULL;
COMMENT ON COLUMN users.key_hash IS 'Of no use any more: see api_keys';

CREATE TABLE person_sessions (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL REFERENCES users,
    key_id uuid REFERENCES api_keys ON DELETE CASCADE,
    browser text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE person_sessions IS 'Browsers in which a person is signed in; deleted when they sign out';
COMMENT ON COLUMN person_sessions.hash IS 'BLAKE3 of the cookie; the cookie itself is not kept';
COMMENT ON COLUMN person_sessions.id IS 'Number of the session, for its person';
COMMENT ON COLUMN person_sessions.user_id IS 'Who is signed in';
COMMENT ON COLUMN person_sessions.key_id IS 'The key it was begun with, and ends with; null: none';
COMMENT ON COLUMN person_sessions.browser IS 'What the browser says it is';
COMMENT ON COLUMN person_sessions.created_at IS 'When they signed in';
COMMENT ON COLUMN person_sessions.seen_at IS 'When it was last renewed: about once a day while it is used';
COMMENT ON COLUMN person_sessions.expires_at IS 'When they have to sign in again';
CREATE INDEX person_sessions_by_person ON person_sessions (user_id, created_at);
CREATE INDEX person_sessions_by_key ON person_sessions (key_id);
CREATE INDEX person_sessions_by_end ON person_sessions (expires_at);
