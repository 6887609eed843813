-- What the work behind an idempotency key goes by, known before it begins, and what it noted on its way: whoever finds the
-- claim without an answer finds out by it what became of the work.
ALTER TABLE idempotency ADD COLUMN object TEXT;
ALTER TABLE idempotency ADD COLUMN note TEXT;
