/** The budgets over time that are nearest to their end. Where nobody has one, there is nothing to see. */
import { useQuery } from "@tanstack/react-query";
import { BudgetUses, budgetsQuery } from "@/parts/budget-uses";
import { Panel } from "./panel";

const MOST = 8;

export function Budgets() {
  const budgets = useQuery(budgetsQuery);
  if (budgets.data === undefined || budgets.data.length === 0) return null;
  return (
    <Panel title="Budgets">
      <BudgetUses most={MOST} />
    </Panel>
  );
}
