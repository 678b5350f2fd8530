/** The rate limits and quotas that are used up most. Hidden if no limit is set. */
import { useQuery } from "@tanstack/react-query";
import { BudgetUses, budgetsQuery } from "@/parts/budget-uses";
import { Panel } from "./panel";

const MOST = 8;

export function Budgets() {
  const budgets = useQuery(budgetsQuery);
  if (budgets.data === undefined || budgets.data.length === 0) return null;
  return (
    <Panel title="Rate limits and quotas">
      <BudgetUses most={MOST} />
    </Panel>
  );
}
