-- subscription: gives back what did not fit into an answer: of token $2, behind position $3. Locks the rows. Index: the
-- primary key.
UPDATE outbox_subscription_events v SET token = NULL, until = NULL, attempts = v.attempts - 1
 WHERE v.subscription = $1 AND v.token = $2 AND v.position > $3
