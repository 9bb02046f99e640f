package natsjs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
)

// Error codes of JetStream (server/errors.json of nats-server) that its client does not name.
const (
	codeAccountResources   = 10002
	codeMemoryExceeded     = 10028
	codeStorageExceeded    = 10047
	codeMessageTooLarge    = 10054
	codeStoreFailed        = 10077
	codeHeaderTooLarge     = 10097
	codeDuplicateInTheMake = 10158
	codeTooManyRequests    = 10167
)

// fullSubject is what codeStoreFailed says where a stream refuses new messages of a subject rather
// than drop old ones (discard_new_per_subject).
const fullSubject = "maximum messages per subject exceeded"

// classify says what the answer for a message means for its event.
func (p *publication) classify(ctx context.Context, i int, err error) error {
	subject := p.batch[i].Destination
	var refused *jetstream.APIError
	switch class, _ := outbox.Classify(err); {
	case class != outbox.ClassRetryable:
		return err
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		if missing := p.streamless(ctx, subject); missing != nil {
			return missing
		}
		return outbox.Unavailable(fmt.Errorf("publish to subject %q: its stream has no leader at this moment", subject))
	case errors.Is(err, nats.ErrMaxPayload):
		return outbox.Permanent(fmt.Errorf("publish to subject %q: the message has %d bytes with its headers, the server "+
			"takes %d (max_payload)", subject, p.sent[i].Size()-len(subject), p.link.conn.MaxPayload()))
	case errors.As(err, &refused):
		return refusal(subject, refused)
	case errors.Is(err, errPublishDenied):
		return fmt.Errorf("publish to subject %q: %w", subject, err)
	case errors.Is(err, jetstream.ErrInvalidJSAck):
		return fmt.Errorf("publish to subject %q: who answers there is no stream", subject)
	}
	if p.target != nil {
		err = p.target.hide(err)
	}
	return outbox.Unavailable(fmt.Errorf("publish to NATS: %w", err))
}

// refusal classes what a stream answers. Limits of the message are for good. Those of the stream,
// of the account and of the server count against no event: what is full is emptied, or made larger.
// The rest is the subject's own.
func refusal(subject string, refused *jetstream.APIError) error {
	err := fmt.Errorf("publish to subject %q: %w", subject, refused)
	switch refused.ErrorCode {
	case codeMessageTooLarge, codeHeaderTooLarge:
		return outbox.Permanent(err)
	case codeAccountResources, codeMemoryExceeded, codeStorageExceeded, codeTooManyRequests, codeDuplicateInTheMake:
		return outbox.Unavailable(err)
	case codeStoreFailed:
		if refused.Description == fullSubject {
			return err
		}
	}
	if refused.Code == 503 { // among them codeStoreFailed of a stream that is full
		return outbox.Unavailable(err)
	}
	return err
}

// askTimeout bounds one question for the stream of a subject.
const askTimeout = 2 * time.Second

// streamless finds out why nobody acknowledged a message. It returns the event's failure if no
// stream has the subject, an error of class outbox.ClassUnavailable if JetStream cannot be asked,
// and nil if there is a stream. The server is asked once for a subject.
func (p *publication) streamless(ctx context.Context, subject string) error {
	err, asked := p.streams[subject]
	if !asked {
		err = p.ask(ctx, subject)
		p.streams[subject] = err
	}
	return err
}

func (p *publication) ask(ctx context.Context, subject string) error {
	missing := fmt.Errorf("publish to subject %q: no stream has it: create one (nats stream add NAME --subjects %q), "+
		"add the subject to one, or have the sink create it by its URL (create=NAME&subjects=%s)",
		subject, subject, subject)
	p.link.mu.Lock()
	mute := p.link.mute
	p.link.mu.Unlock()
	if mute {
		return fmt.Errorf("%w; if one has it, it has no leader: the user may not ask, %s is denied", missing, streamNames)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := p.link.js.StreamNameBySubject(ctx, subject)
	var refused *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return missing
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return outbox.Unavailable(errors.New("publish to NATS: JetStream is not enabled on the server or for the account"))
	case errors.As(err, &refused):
		return outbox.Unavailable(fmt.Errorf("publish to subject %q: find its stream: %w", subject, refused))
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && p.link.use() == nil:
		p.link.mu.Lock()
		mute = p.link.mute
		p.link.mu.Unlock()
		if mute { // which is told beside the answers
			return p.ask(ctx, subject)
		}
	}
	return outbox.Unavailable(fmt.Errorf("publish to subject %q: find its stream: %w", subject, err))
}
