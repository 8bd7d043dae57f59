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
  `event_time` AS COALESCE(`at`, CAST(TIMESTAMP '1970-01-01 00:00:00' AS TIMESTAMP(3))),
  WATERMARK FOR `event_time` AS `event_time` - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'events',
  'properties.bootstrap.servers' = '${BROKERS}',
  'properties.group.id' = 'streamform-shop-prod-m',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'scan.watermark.idle-timeout' = '30000 ms',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TEMPORARY VIEW `e/checked` AS
SELECT
  `at`, `b`, `i`, `k`, `s`, `v`, `event_time`,
  CASE WHEN ((`at` IS NOT NULL)) IS NOT TRUE THEN 'timed' WHEN ((`v` < CAST(100 AS DECIMAL(20, 0)))) IS NOT TRUE THEN 'it''s small' ELSE CAST(NULL AS STRING) END AS `contract`
FROM `e/raw`;

CREATE TEMPORARY TABLE `e/quarantine` (
  `at` TIMESTAMP(3),
  `b` BOOLEAN,
  `i` INT,
  `k` BIGINT,
  `s` STRING,
  `v` DECIMAL(12, 2),
  `contract` STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'bad',
  'properties.bootstrap.servers' = '${BROKERS}',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.encode.decimal-as-plain-number' = 'true'
);

CREATE TEMPORARY VIEW `e` AS
SELECT
  `event_time` AS `at`, `b`, `i`, `k`, `s`, `v`
FROM `e/checked`
WHERE `contract` IS NULL
  AND (CURRENT_WATERMARK(`event_time`) IS NULL OR `event_time` >= CURRENT_WATERMARK(`event_time`));

CREATE TEMPORARY VIEW `m` AS
SELECT
  `k`,
  `at`
FROM `e` AS `i`;

CREATE TEMPORARY TABLE `m/sink` (
  `k` BIGINT,
  `at` TIMESTAMP(3)
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
INSERT INTO `e/quarantine` (`at`, `b`, `i`, `k`, `s`, `v`, `contract`)
SELECT `at`, `b`, `i`, `k`, `s`, `v`, `contract`
FROM `e/checked`
WHERE `contract` IS NOT NULL;
INSERT INTO `m/sink` (`k`, `at`)
SELECT `k`, `at`
FROM `m`;
END;
