/** JSON as a table, where it is a list of objects. */
import { isObject, type Json } from "@/parts/schema-form-model";

export interface Table {
  /** Of the member that holds the list; empty: the whole value is the list. */
  readonly name: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
  /** How many rows and columns are not in it. */
  readonly leftRows: number;
  readonly leftColumns: number;
}

export interface Cell {
  readonly text: string;
  readonly isNumber: boolean;
}

export const MOST_ROWS = 200;
export const MOST_COLUMNS = 12;
const NO_CELL: Cell = { text: "", isNumber: false };

function cellOf(value: Json | undefined): Cell {
  if (value === undefined || value === null) return NO_CELL;
  if (typeof value === "string") return { text: value, isNumber: false };
  return { text: JSON.stringify(value), isNumber: typeof value === "number" };
}

function tableOf(name: string, value: Json): Table | null {
  if (!Array.isArray(value) || value.length === 0 || !value.every(isObject)) return null;
  const names = [...new Set(value.slice(0, MOST_ROWS).flatMap((one) => Object.keys(one)))];
  if (names.length === 0) return null;
  const columns = names.slice(0, MOST_COLUMNS);
  const rows = value
    .slice(0, MOST_ROWS)
    .map((one) => columns.map((column) => cellOf(Object.hasOwn(one, column) ? one[column] : undefined)));
  return {
    name,
    columns,
    rows,
    leftRows: value.length - rows.length,
    leftColumns: names.length - columns.length,
  };
}

/** The tables in a value: itself, or its members. None where a table would leave something out. */
export function tablesOf(value: Json): Table[] {
  const whole = tableOf("", value);
  if (whole) return [whole];
  if (!isObject(value)) return [];
  const found = Object.entries(value).map(([name, one]) => tableOf(name, one));
  return found.every((one) => one !== null) ? found : [];
}

/** The JSON that a text is, if it is an object or a list. */
export function jsonIn(text: string): Json | undefined {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** Whether the texts of a result only repeat its structured content, which is shown anyway: as one text, or part by
 *  part. */
export function repeats(texts: readonly string[], structured: unknown): boolean {
  if (!isObject(structured) || texts.length === 0) return false;
  const members = Object.values(structured);
  const wholes: unknown[] = members.length === 1 ? [structured, members[0]] : [structured];
  if (texts.length === 1 && wholes.some((one) => isText(texts[0] ?? "", one))) return true;
  const parts = members.length === 1 ? members[0] : undefined;
  return (
    Array.isArray(parts) &&
    parts.length === texts.length &&
    parts.every((one, place) => isText(texts[place] ?? "", one))
  );
}

function isText(text: string, value: unknown): boolean {
  if (typeof value === "string") return value === text;
  const said = jsonIn(text);
  return (said === undefined ? text.trim() : JSON.stringify(said)) === JSON.stringify(value);
}
