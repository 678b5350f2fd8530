/** The form of every field, in sections: the first is open, the others say what is set in them. */
import { Accordion, Text } from "@mantine/core";
import { type ComponentType, useEffect, useState } from "react";
import { Untrusted } from "@/parts/untrusted";
import {
  ApprovalFields,
  type FormProps,
  IdentityFields,
  LimitFields,
  OfferFields,
  ReachFields,
  RedactionFields,
} from "./form-fields";
import { SECTIONS } from "./form-sections";
import styles from "./servers.module.css";

type SectionProps = FormProps & { readonly isNew: boolean };

const FIELDS: Readonly<Record<string, ComponentType<SectionProps>>> = {
  general: IdentityFields,
  connection: ReachFields,
  tools: OfferFields,
  approvals: ApprovalFields,
  redaction: RedactionFields,
  limits: LimitFields,
};

interface FormAccordionProps extends SectionProps {
  /** Whether fields can be read only. Sections open all the same. */
  readonly isFixed: boolean;
}

export function FormAccordion({ isFixed, ...props }: FormAccordionProps) {
  const { form, problem } = props;
  const [open, setOpen] = useState<string[]>(["general"]);
  // A section with a problem opens, and stays open once the problem is gone.
  const wrong = SECTIONS.filter(({ paths }) => paths.some((path) => problem(path) !== undefined))
    .map((one) => one.key)
    .join(" ");
  const value = [...new Set([...open, ...wrong.split(" ")])];
  useEffect(() => {
    if (wrong !== "") setOpen((old) => [...new Set([...old, ...wrong.split(" ")])]);
  }, [wrong]);
  return (
    <Accordion multiple order={2} variant="separated" transitionDuration={0} value={value} onChange={setOpen}>
      {SECTIONS.map(({ key, title, summary }) => {
        const Fields = FIELDS[key];
        return (
          <Accordion.Item key={key} value={key} className={styles.section}>
            <Accordion.Control>
              <Text fw={600}>{title}</Text>
              <Text size="sm" c="dimmed" lineClamp={1}>
                <Untrusted text={summary(form)} />
              </Text>
            </Accordion.Control>
            <Accordion.Panel>
              <fieldset disabled={isFixed} style={{ border: 0, margin: 0, padding: 0, minWidth: 0 }}>
                {Fields ? <Fields {...props} /> : null}
              </fieldset>
            </Accordion.Panel>
          </Accordion.Item>
        );
      })}
    </Accordion>
  );
}
