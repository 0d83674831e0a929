export interface Finding {
  readonly state: 'ok' | 'note' | 'problem';
  readonly text: string;
}

export const ok = (text: string): Finding => ({ state: 'ok', text });
export const note = (text: string): Finding => ({ state: 'note', text });
export const problem = (text: string): Finding => ({ state: 'problem', text });
