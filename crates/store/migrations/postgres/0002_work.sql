-- Living interpreters, one-shot runs, events and requests that may be sent twice.

ALTER TABLE tenants ADD COLUMN event_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE execs ADD COLUMN context TEXT COLLATE "C";

CREATE TABLE contexts (
    tenant          TEXT COLLATE "C" NOT NULL,
    sandbox         TEXT COLLATE "C" NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    language        TEXT NOT NULL,
    cwd             TEXT NOT NULL,
    env             TEXT NOT NULL,
    exec            TEXT COLLATE "C" NOT NULL,
    created_at      BIGINT NOT NULL,
    ended_at        BIGINT,
    position        BIGINT NOT NULL,
    next_cell       BIGINT NOT NULL,
    cell_exec       TEXT COLLATE "C",
    execution_count BIGINT NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, sandbox) REFERENCES sandboxes (tenant, id) ON DELETE CASCADE
);
CREATE INDEX contexts_by_sandbox ON contexts (tenant, sandbox, created_at, id);
CREATE INDEX contexts_living ON contexts (tenant, sandbox) WHERE ended_at IS NULL;

CREATE TABLE runs (
    tenant       TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    id           TEXT COLLATE "C" NOT NULL,
    language     TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    ended_at     BIGINT,
    status       TEXT,
    result       TEXT,
    problem      TEXT,
    request_hash TEXT,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX runs_by_age ON runs (tenant, created_at, id);
CREATE INDEX runs_unfinished ON runs (tenant, created_at) WHERE ended_at IS NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

-- Numbered by tenants.event_seq. An event may outlive its sandbox.
CREATE TABLE events (
    tenant  TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    sandbox TEXT COLLATE "C",
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, seq)
);
CREATE INDEX events_by_sandbox ON events (tenant, sandbox, seq);
CREATE INDEX events_by_age ON events (at);

-- `status` is empty while the request is in flight.
CREATE TABLE idempotency (
    tenant       TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    route        TEXT COLLATE "C" NOT NULL,
    key          TEXT COLLATE "C" NOT NULL,
    body_hash    TEXT NOT NULL,
    node         TEXT COLLATE "C" NOT NULL,
    instance     TEXT COLLATE "C" NOT NULL,
    begun_at     BIGINT NOT NULL,
    status       BIGINT,
    content_type TEXT,
    body         BYTEA,
    PRIMARY KEY (tenant, route, key)
);
CREATE INDEX idempotency_by_age ON idempotency (begun_at);

-- When each server was last heard of.
CREATE TABLE instances (
    node     TEXT COLLATE "C" NOT NULL,
    instance TEXT COLLATE "C" NOT NULL,
    seen_at  BIGINT NOT NULL,
    PRIMARY KEY (node, instance)
);
