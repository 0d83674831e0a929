import * as z from 'zod';
import { MAX_TIMER_MS } from '../../kit/clock.ts';
import { splitList } from '../split-list.ts';

/** The section of an option in `--help` and in the reference. */
export type OptionGroup =
  | 'Server'
  | 'Workers'
  | 'Routing'
  | 'Fleet control'
  | 'Retries'
  | 'Breaker'
  | 'Health'
  | 'Limits'
  | 'Plugins'
  | 'Weight swaps'
  | 'Trajectories'
  | 'Tinker'
  | 'Endpoint picker'
  | 'Security'
  | 'TLS'
  | 'Observability';

export interface OptionSpec<S extends z.ZodType = z.ZodType> extends OptionDetails {
  readonly group: OptionGroup;
  readonly help: string;
  /** How the value is written in help: `<secs>`; '' for a flag without a value. */
  readonly value: string;
  readonly schema: S;
}

interface OptionDetails {
  /** How the text of a list is split, if an entry may have spaces and commas. */
  readonly split?: (text: string) => string[];
  /** A reload (SIGHUP) ignores a new value, because it is used only while the router starts. */
  readonly needsRestart?: true | 'when set or unset';
  /** The value is a list of objects: it is given in the YAML file of `--config` and is no flag or variable. */
  readonly isFileOnly?: true;
  /** `--help` lists only these; `--help all` lists every option. */
  readonly isCommon?: true;
}

export const inGroup =
  (group: OptionGroup) =>
  <S extends z.ZodType>(value: string, schema: S, help: string, details: OptionDetails = {}): OptionSpec<S> => ({
    group,
    value,
    schema,
    help,
    ...details,
  });

/** The type of an option's value without its default. */
export const innerSchema = (schema: z.ZodType): z.ZodType => {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodOptional)
    return innerSchema(schema.unwrap() as z.ZodType);
  return schema instanceof z.ZodPipe ? innerSchema(schema.in as z.ZodType) : schema;
};

export const isNumeric = (text: string): boolean => /^-?\d+(\.\d+)?$/.test(text.trim());

/** An address to listen on. Launchers pass one of IPv6 with the brackets that it has in URLs: slime and miles do. */
export const address = z.string().overwrite((text) => text.replace(/^\[(.*)\]$/, '$1'));
export const port = z.int().min(0).max(65_535);
export const secs = z
  .number()
  .min(0)
  .max(Math.floor(MAX_TIMER_MS / 1000));
export const ms = z.int().min(0).max(MAX_TIMER_MS);
export const count = z.int().min(0);
/** The name of a header, in lower case. */
export const headerName = z
  .string()
  .regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'not a header name')
  .toLowerCase();
/** A fraction, 0 to 1. */
export const share = z.number().min(0).max(1);
export const flag = z.boolean().default(false);
export const file = z.string().min(1).optional();
/** A list of numbers. Flags and variables have texts, of which a message can show those that are no numbers. */
export const numbers = (each: z.ZodNumber) =>
  z.array(z.preprocess((value) => (typeof value === 'string' && isNumeric(value) ? Number(value) : value), each));
/** Also as JSON. */
export const splitNumbers = (text: string): string[] => splitList([text.replace(/^\s*\[(.*)\]\s*$/s, '$1')]);
export const list = z.array(z.string().min(1)).default([]);
