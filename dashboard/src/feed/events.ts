/** Splits the text of server-sent events into the data of each. The router sends one line of JSON an event. */
export class EventSplitter {
  #rest = '';

  push(text: string): string[] {
    const parts = (this.#rest + text).split('\n\n');
    this.#rest = parts.pop()!;
    return parts.filter((part) => part.startsWith('data: ')).map((part) => part.slice('data: '.length));
  }
}
