/** A schema as a tree that people read. */
import { Badge, Group, Text } from "@mantine/core";
import { shortOf } from "@/parts/schema-form-inputs";
import type { Field } from "@/parts/schema-form-model";
import { Untrusted } from "@/parts/untrusted";
import styles from "./catalog.module.css";

const CHOICES = 20;

interface Branch {
  readonly key: string;
  /** Empty: it has none. */
  readonly name: string;
  readonly isRequired: boolean;
  readonly field: Field;
}

export function SchemaTree({ field }: { readonly field: Field }) {
  const branches = branchesOf(field);
  if (branches.length > 0) return <Branches branches={branches} />;
  if (field.kind === "group") return <Text c="dimmed">No fields.</Text>;
  return <Branches branches={[{ key: "", name: "", isRequired: false, field }]} />;
}

function branchesOf(field: Field): Branch[] {
  switch (field.kind) {
    case "group":
      return field.members.map((one) => ({ ...one, key: one.name }));
    case "variants":
      return field.options.map((one, index) => ({
        key: String(index),
        name: one.title || `${index + 1}.`,
        isRequired: false,
        field: one,
      }));
    case "list":
      return hasMore(field.item)
        ? [{ key: "item", name: "each item", isRequired: false, field: field.item }]
        : [];
    default:
      return [];
  }
}

/** Whether more is to be said of an entry than its type. */
function hasMore(field: Field): boolean {
  return (
    field.description !== "" ||
    field.limits.length > 0 ||
    field.kind === "choice" ||
    branchesOf(field).length > 0
  );
}

function Branches({ branches }: { readonly branches: readonly Branch[] }) {
  return (
    <ul className={styles.tree}>
      {branches.map(({ key, ...one }) => (
        <li key={key}>
          <Line {...one} />
          <BranchesBelow field={one.field} />
        </li>
      ))}
    </ul>
  );
}

function BranchesBelow({ field }: { readonly field: Field }) {
  const below = branchesOf(field);
  return below.length > 0 ? <Branches branches={below} /> : null;
}

function Line({ name, isRequired, field }: Omit<Branch, "key">) {
  return (
    <>
      <Group gap="xs">
        {name ? (
          <Text span fw={600}>
            <Untrusted text={name} mono />
          </Text>
        ) : null}
        <Text span size="sm" c="dimmed">
          <Untrusted
            text={[field.type, ...(field.isNullable ? ["or null"] : []), ...field.limits].join(", ")}
          />
        </Text>
        {isRequired ? (
          <Badge size="sm" variant="light" tt="none">
            required
          </Badge>
        ) : null}
        {field.initial === undefined ? null : (
          <Text span size="sm" c="dimmed">
            default <span className="mono">{shortOf(field.initial)}</span>
          </Text>
        )}
      </Group>
      {field.kind === "choice" ? <Choices options={field.options.map(shortOf)} /> : null}
      {field.description ? (
        <Text size="sm" component="div">
          <Untrusted text={field.description} />
        </Text>
      ) : null}
      {field.kind === "raw" ? (
        <Text size="sm" c="dimmed">
          Not shown in detail: {field.why}.
        </Text>
      ) : null}
    </>
  );
}

function Choices({ options }: { readonly options: readonly string[] }) {
  const left = options.length - CHOICES;
  return (
    <Text size="sm" component="div">
      One of <span className="mono">{options.slice(0, CHOICES).join(", ")}</span>
      {left > 0 ? `, and ${left} more` : ""}
    </Text>
  );
}
