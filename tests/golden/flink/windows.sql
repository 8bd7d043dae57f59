SET 'table.local-time-zone' = 'UTC';

SET 'table.exec.sink.not-null-enforcer' = 'ERROR';

SET 'table.exec.sink.upsert-materialize' = 'NONE';

SET 'table.optimizer.agg-phase-strategy' = 'ONE_PHASE';

SET 'execution.checkpointing.interval' = '10000 ms';

CREATE TEMPORARY TABLE `e/raw` (
  `at` TIMESTAMP(3),
  `b` BOOLEAN,
  `i` INT,
  `k` BIGINT,
  `s` STRING,
  `v` DECIMAL(12, 2),
  WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'events',
  'properties.bootstrap.servers' = '${BROKERS}',
  'properties.group.id' = 'streamform-shop-prod-m',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TEMPORARY VIEW `e` AS
SELECT
  `at`, `b`, `i`, `k`, `s`, `v`
FROM `e/raw`
WHERE (CURRENT_WATERMARK(`at`) IS NULL OR `at` >= CURRENT_WATERMARK(`at`));

CREATE TEMPORARY VIEW `m/aggregate.0` AS
SELECT
  `at`,
  `b`,
  `i`,
  `k`,
  `s`,
  `v`
FROM `e` AS `i`;

CREATE TEMPORARY VIEW `m` AS
SELECT
  `k`,
  `window_start`,
  `window_end`,
  `count(*)` AS `n`
FROM (
  SELECT
    `k`,
    `window_start`,
    `window_end`,
    COUNT(*) AS `count(*)`
  FROM TABLE(HOP(TABLE `m/aggregate.0`, DESCRIPTOR(`at`), INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)) AS `i`
  GROUP BY `k`, `window_start`, `window_end`
) AS `i`;

CREATE TEMPORARY TABLE `m/sink` (
  `k` BIGINT,
  `window_start` TIMESTAMP(3),
  `window_end` TIMESTAMP(3),
  `n` BIGINT
) WITH (
  'connector' = 'kafka',
  'topic' = 'm-out',
  'properties.bootstrap.servers' = '${BROKERS}',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.encode.decimal-as-plain-number' = 'true'
);

SET 'pipeline.name' = 'streamform/shop/prod/m';

EXECUTE STATEMENT SET
BEGIN
INSERT INTO `m/sink` (`k`, `window_start`, `window_end`, `n`)
SELECT `k`, `window_start`, `window_end`, `n`
FROM `m`;
END;
