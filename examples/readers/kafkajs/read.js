// Prints the records of a topic, a JSON object each: node read.js BROKER TOPIC COUNT
const { Kafka, logLevel } = require('kafkajs')

const [broker, topic, count] = process.argv.slice(2)
const consumer = new Kafka({ clientId: 'reader', brokers: [broker], logLevel: logLevel.ERROR }).consumer({ groupId: 'kafkajs' })
let left = Number(count)

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise((resolve) => consumer.run({
    eachMessage: async ({ message }) => {
      console.log(JSON.stringify({ key: String(message.key), value: String(message.value) }))
      if (--left === 0) resolve()
    },
  }))
  await consumer.disconnect()
}

main().catch((e) => { console.error(e); process.exit(1) })
