// A page that shows a run by the hook, and says to the test's server what it shows.
import { createRoot } from "react-dom/client";
import { StrictMode } from "react";
import { Outbox } from "@outboxrelay/client";
import { useRunEvents } from "@outboxrelay/client/react";

const outbox = new Outbox({ url: "/" });
const run = new URLSearchParams(location.search).get("run") ?? "";

function Run() {
  const { events, state } = useRunEvents(outbox, run, { limit: 5000 });
  const shown = { state, ids: events.map(({ id }) => Number(id)), last: events.at(-1)?.type };
  fetch("/shown", { method: "POST", body: JSON.stringify(shown) });
  return <ol>{events.map(({ id, type }) => <li key={id}>{type}</li>)}</ol>;
}

createRoot(document.body).render(<StrictMode><Run /></StrictMode>);
