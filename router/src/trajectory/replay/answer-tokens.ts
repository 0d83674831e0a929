interface Choice {
  readonly token_ids?: unknown;
  readonly meta_info?: Meta;
}

interface Meta {
  readonly completion_tokens?: unknown;
  readonly output_token_logprobs?: unknown;
}

interface Answer {
  readonly output_ids?: unknown;
  readonly meta_info?: Meta;
  readonly choices?: readonly Choice[];
}

/** Ids of one event or whole body, in whichever of the engines' forms; null: it has none. */
function idsOf(answer: Answer): number[] | null {
  const [choice] = Array.isArray(answer.choices) ? answer.choices : [];
  const meta = answer.meta_info ?? choice?.meta_info;
  if (Array.isArray(answer.output_ids)) return answer.output_ids as number[];
  if (Array.isArray(choice?.token_ids)) return choice.token_ids as number[];
  // SGLang: [logprob, id, text or null] for each.
  if (Array.isArray(meta?.output_token_logprobs)) {
    return (meta.output_token_logprobs as [number, number, unknown][]).map(([, id]) => id);
  }
  return null;
}

/** The ids that an engine sampled, out of its answer. @returns null: the answer doesn't tell (it has to be asked for) */
export function answerTokens(body: string, isEventStream: boolean): number[] | null {
  if (!isEventStream) return idsOf(parse(body));
  let ids: number[] | null = null;
  let count = -1;
  let last: number[] = [];
  for (const line of body.split(/\r\n|\r|\n/)) {
    if (!line.startsWith('data:') || line.slice(5).trim() === '[DONE]') continue;
    const event = parse(line.slice(5));
    const found = idsOf(event);
    const told = (event.meta_info ?? event.choices?.[0]?.meta_info)?.completion_tokens;
    if (typeof told === 'number') count = told;
    if (found === null) continue;
    ids = [...(ids ?? []), ...found];
    if (found.length > 0) last = found;
  }
  // SGLang's events hold all that came before, unless it was told otherwise; the others' only what is new.
  return ids !== null && last.length === count ? last : ids;
}

function parse(text: string): Answer {
  try {
    return (JSON.parse(text) as Answer | null) ?? {};
  } catch {
    return {};
  }
}
