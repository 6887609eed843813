-- What runs and sandboxes were expected to cost and did cost. Money is in picodollars, 10^-12 USD.

-- In the order in which things began, so that the records of short runs share pages. `part` 0 is the run or sandbox itself,
-- the others are attempts of it that failed and cost something. `ended_at` is empty while it lives.
CREATE TABLE ledger (
    tenant            TEXT NOT NULL REFERENCES tenants (id),
    began_at          BIGINT NOT NULL,
    object            TEXT NOT NULL,
    part              BIGINT NOT NULL,
    kind              TEXT NOT NULL,
    key               TEXT NOT NULL,
    provider          TEXT NOT NULL,
    region            TEXT,
    cpu_milli         BIGINT NOT NULL,
    memory_bytes      BIGINT NOT NULL,
    max_cost          BIGINT,
    estimate          BIGINT NOT NULL,
    ended_at          BIGINT,
    wall_ms           BIGINT NOT NULL,
    cpu_ms            BIGINT NOT NULL,
    peak_memory_bytes BIGINT NOT NULL,
    priced            BIGINT NOT NULL,
    charge            BIGINT NOT NULL,
    credit            BIGINT NOT NULL,
    margin            BIGINT NOT NULL,
    snapshots         BIGINT NOT NULL,
    PRIMARY KEY (tenant, began_at, object, part)
);
-- Not by tenant first: the key begins with that, and would be searched from there.
CREATE INDEX ledger_open ON ledger (object) WHERE ended_at IS NULL;
CREATE INDEX ledger_credits ON ledger (provider, began_at) WHERE credit > 0;

-- Labels of a run or sandbox, for as long as it is in the ledger.
CREATE TABLE ledger_labels (
    tenant TEXT NOT NULL REFERENCES tenants (id),
    object TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (tenant, object, name)
);
