-- subscription: gives back what did not fit into an answer: of its token, behind a position. Locks the rows. Index: the
-- primary key.
UPDATE outbox_subscription_events v SET token = NULL, until = NULL, attempts = v.attempts - 1
 WHERE v.subscription = {{arg .Name}} AND v.token = {{arg .Last.Token}} AND v.position > {{arg .Last.Position}}::text::bigint
