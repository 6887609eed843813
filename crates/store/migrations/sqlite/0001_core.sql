-- Tenants, their keys, sandboxes and execs, and the audit. All times are milliseconds since 1970, UTC.

CREATE TABLE tenants (
    id         TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    quota      TEXT,
    created_at BIGINT NOT NULL
);

-- The tenant of whoever serves nobody else; its id is 128 zero bits.
INSERT INTO tenants (id, name, quota, created_at) VALUES ('ten_aaaaaaaaaaaaaaaaaaaaaaaaaa', 'local', NULL, 0);

CREATE TABLE keys (
    id           TEXT NOT NULL PRIMARY KEY,
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    name         TEXT NOT NULL,
    hash         TEXT NOT NULL UNIQUE,
    scopes       TEXT NOT NULL,
    form         TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    revoked_at   BIGINT,
    last_used_at BIGINT
);
CREATE INDEX keys_by_tenant ON keys (tenant, created_at);

-- Everything that hangs on a sandbox refers to (tenant, id), so that no row can join two tenants.
CREATE TABLE sandboxes (
    tenant          TEXT NOT NULL REFERENCES tenants (id),
    id              TEXT NOT NULL UNIQUE,
    spec            TEXT NOT NULL,
    state           TEXT NOT NULL,
    reason          TEXT,
    idle_timeout_ms BIGINT,
    walls           TEXT,
    provider        TEXT NOT NULL,
    cpu_milli       BIGINT NOT NULL,
    memory_bytes    BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    expires_at      BIGINT,
    ended_at        BIGINT,
    last_used_at    BIGINT NOT NULL,
    revision        BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX sandboxes_by_age ON sandboxes (tenant, created_at, id);
CREATE INDEX sandboxes_living ON sandboxes (tenant, cpu_milli, memory_bytes) WHERE ended_at IS NULL;
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE sandbox_labels (
    tenant  TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    name    TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (tenant, sandbox, name),
    FOREIGN KEY (tenant, sandbox) REFERENCES sandboxes (tenant, id) ON DELETE CASCADE
);
CREATE INDEX sandbox_labels_by_value ON sandbox_labels (tenant, name, value);

CREATE TABLE transitions (
    tenant      TEXT NOT NULL,
    sandbox     TEXT NOT NULL,
    revision    BIGINT NOT NULL,
    from_state  TEXT,
    from_reason TEXT,
    to_state    TEXT NOT NULL,
    to_reason   TEXT,
    at          BIGINT NOT NULL,
    PRIMARY KEY (tenant, sandbox, revision),
    FOREIGN KEY (tenant, sandbox) REFERENCES sandboxes (tenant, id) ON DELETE CASCADE
);

CREATE TABLE execs (
    tenant     TEXT NOT NULL,
    sandbox    TEXT NOT NULL,
    id         TEXT NOT NULL,
    title      TEXT NOT NULL,
    kind       TEXT NOT NULL,
    background BIGINT NOT NULL,
    tty        BIGINT NOT NULL,
    lasting    BIGINT NOT NULL,
    timeout_ms BIGINT,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT,
    status     TEXT,
    result     TEXT,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, sandbox) REFERENCES sandboxes (tenant, id) ON DELETE CASCADE
);
CREATE INDEX execs_by_sandbox ON execs (tenant, sandbox, started_at, id);
CREATE INDEX execs_running ON execs (tenant, sandbox) WHERE ended_at IS NULL;

-- One chain for each node that writes here. Records outlive what they speak of, so they refer to nothing.
CREATE TABLE audit (
    node         TEXT NOT NULL,
    seq          BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    monotonic_ms BIGINT NOT NULL,
    tenant       TEXT NOT NULL,
    principal    TEXT NOT NULL,
    action       TEXT NOT NULL,
    object       TEXT NOT NULL,
    decision     TEXT NOT NULL,
    request_id   TEXT NOT NULL,
    detail       TEXT,
    prev_hash    TEXT NOT NULL,
    hash         TEXT NOT NULL,
    PRIMARY KEY (node, seq)
);
CREATE INDEX audit_by_tenant ON audit (tenant, node, seq);

CREATE TABLE audit_heads (
    node TEXT NOT NULL PRIMARY KEY,
    seq  BIGINT NOT NULL,
    hash TEXT NOT NULL
);

-- `kind` is `mark`, or `cut` when the records up to it were removed because of their age.
CREATE TABLE audit_checkpoints (
    node TEXT NOT NULL,
    seq  BIGINT NOT NULL,
    kind TEXT NOT NULL,
    at   BIGINT NOT NULL,
    hash TEXT NOT NULL,
    mac  TEXT NOT NULL,
    PRIMARY KEY (node, seq, kind)
);
