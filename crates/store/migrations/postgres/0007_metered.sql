-- Whether the figures of a bill are those of whoever ran it, or were measured from outside.
ALTER TABLE ledger ADD COLUMN metered BIGINT NOT NULL DEFAULT 1;
