-- Saved sandboxes. `sandbox` is the one that was saved, which may be gone; `spec` is what it was. A row is `making` before
-- there is anything, `ready` when all of it is there, `ending` until whoever keeps it has removed it. A name is given when
-- it is ready, and taken from whichever had it before. `key` asked for it; until `charged_until` the ledger has what keeping
-- it costs.
CREATE TABLE snapshots (
    tenant        TEXT NOT NULL REFERENCES tenants (id),
    id            TEXT NOT NULL,
    sandbox       TEXT NOT NULL,
    name          TEXT,
    provider      TEXT NOT NULL,
    spec          TEXT NOT NULL,
    state         TEXT NOT NULL,
    size_bytes    BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    key           TEXT NOT NULL,
    charged_until BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX snapshots_by_age ON snapshots (tenant, created_at, id);
CREATE INDEX snapshots_charged ON snapshots (charged_until) WHERE state = 'ready';
CREATE INDEX snapshots_unsettled ON snapshots (created_at) WHERE state <> 'ready';
