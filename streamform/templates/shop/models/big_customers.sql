-- Customers appear when they cross the threshold, and disappear when a refund takes them below it.
SELECT customer_id, total_spend
FROM ref('customer_metrics')
WHERE total_spend > 1000
