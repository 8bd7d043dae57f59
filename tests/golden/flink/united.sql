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

CREATE TEMPORARY TABLE `p` (
  `at` TIMESTAMP(3),
  `b` BOOLEAN,
  `i` INT,
  `k` BIGINT,
  `s` STRING,
  `v` DECIMAL(12, 2)
) WITH (
  'connector' = 'kafka',
  'topic' = 'plain',
  'properties.bootstrap.servers' = '${BROKERS}',
  'properties.group.id' = 'streamform-shop-prod-m',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TEMPORARY VIEW `m` AS
SELECT
  `k` AS `k`,
  `s` AS `s`
FROM (
  SELECT
    `k`,
    `s`
  FROM `p` AS `i`
  WHERE `b`
) AS `i`
UNION ALL
SELECT
  `k` AS `k`,
  `s` AS `s`
FROM (
  SELECT
    `k`,
    CAST('y' AS STRING) AS `s`
  FROM `e` AS `i`
) AS `i`;

CREATE TEMPORARY TABLE `m/sink` (
  `k` BIGINT,
  `s` STRING
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
INSERT INTO `m/sink` (`k`, `s`)
SELECT `k`, `s`
FROM `m`;
END;
