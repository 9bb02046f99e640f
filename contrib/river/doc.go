// Package outboxriver keeps jobs of River (github.com/riverqueue/river) that failed for good among
// the dead letters, and gives them back to River when an operator replays them. Letters is the
// ErrorHandler and the worker middleware of a client, Replay is what postgres.OpenDeadLetters needs
// to replay its jobs.
//
// Guaranteed: a job that ends as discarded, or as cancelled by its own worker, has a letter with
// its arguments, its reason and all its errors. For that Sweep runs within the time that River
// keeps such jobs: by default a week for discarded ones, a day for cancelled ones. The same attempt
// of a job has one pending letter, whichever processes record it at once. A replay inserts the job
// in the transaction that marks the letter, so both happen or neither. Jobs are inserted in the
// order in which River had numbered them. A replay does not insert one while River still runs that
// job, or has done it meanwhile.
//
// Why Sweep: River asks its ErrorHandler before it marks the job, outside its transaction, and
// discards the job whatever the handler answers. So a crash in between leaves a letter of a job
// that River calls running. River's rescuer ends the job later, and the letter is not written
// twice. If attempts are left the job runs again, and cannot be replayed meanwhile. A letter that
// could not be written is logged, and the job is in River alone. Of a job whose process died,
// River's rescuer tells nobody. Sweep finds the last two.
//
// Not guaranteed: that a replayed job is unique again (River keeps a key's hash, not its rules), or
// that the work was not partly done before. Jobs that somebody cancelled from outside get no
// letter: that was a decision. A replayed job keeps its arguments, queue, priority, tags, metadata
// and number of attempts, is a new job with an id of its own, and is due at once.
//
// Letters and River's tables must be in one database. Recording needs the rights of outbox_relay on
// job_dlq and apps; a replay those of outbox_operator, and what River needs to insert.
package outboxriver
