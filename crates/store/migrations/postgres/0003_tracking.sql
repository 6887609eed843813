-- Files, measurements, use by day, names.

ALTER TABLE execs ADD COLUMN detail TEXT;

CREATE TABLE files (
    tenant  TEXT COLLATE "C" NOT NULL,
    sandbox TEXT COLLATE "C" NOT NULL,
    path    TEXT COLLATE "C" NOT NULL,
    size    BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (tenant, sandbox, path),
    FOREIGN KEY (tenant, sandbox) REFERENCES sandboxes (tenant, id) ON DELETE CASCADE
);

CREATE TABLE samples (
    tenant            TEXT COLLATE "C" NOT NULL,
    sandbox           TEXT COLLATE "C" NOT NULL,
    at                BIGINT NOT NULL,
    cpu_ms            BIGINT NOT NULL,
    memory_bytes      BIGINT NOT NULL,
    peak_memory_bytes BIGINT NOT NULL,
    processes         BIGINT NOT NULL,
    disk_bytes        BIGINT NOT NULL,
    inodes            BIGINT NOT NULL,
    PRIMARY KEY (tenant, sandbox, at),
    FOREIGN KEY (tenant, sandbox) REFERENCES sandboxes (tenant, id) ON DELETE CASCADE
);
CREATE INDEX samples_by_age ON samples (at);

-- `day` counts from 1970, UTC.
CREATE TABLE usage (
    tenant             TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    day                BIGINT NOT NULL,
    runs               BIGINT NOT NULL,
    execs              BIGINT NOT NULL,
    sandboxes_created  BIGINT NOT NULL,
    cpu_ms             BIGINT NOT NULL,
    memory_mib_seconds BIGINT NOT NULL,
    PRIMARY KEY (tenant, day)
);

-- A name is claimed before its sandbox is made, so it may name one that is not there.
CREATE TABLE names (
    tenant  TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
    kind    TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    sandbox TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, kind, name)
);
CREATE INDEX names_by_sandbox ON names (tenant, sandbox);
